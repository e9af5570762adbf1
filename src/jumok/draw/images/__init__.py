"""Pictures of images: galleries with captions, and attention weights drawn over an image."""
