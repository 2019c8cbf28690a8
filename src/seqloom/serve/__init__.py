"""The HTTP server of `seqloom explore`: routes, and what guards them."""
