"""Runs steps inside contexts. Pure asyncio: it knows neither Ray nor the journal's home."""
