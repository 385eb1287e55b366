"""A live agent in the browser."""
