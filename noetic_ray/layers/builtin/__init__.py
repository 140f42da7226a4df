"""The layers that come with the library; `noetic_ray.layers` has the functions that make them."""
