"""Model families that classify images: ViT and Swin."""
