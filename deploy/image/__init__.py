"""What the image is made of, and what builds and tries it."""
