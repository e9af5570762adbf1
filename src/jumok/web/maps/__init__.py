"""Maps of a forward pass as the page shows them: its attentions, tiles of them, and its predictions."""
