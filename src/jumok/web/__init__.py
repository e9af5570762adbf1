"""The page: a session answers what the browser, a notebook or a saved file asks about a model's attention."""
