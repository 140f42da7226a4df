"""Model Context Protocol servers: their settings, their answers, the connection to them."""
