"""Images: read image files safely, and prepare them as a model expects."""
