"""All filters of a server as one value, and what each logged operation does to them."""
