"""How a lens runs a model: from the first edited block on, batch by batch, in generation, with progress, in threads."""
