"""Model repositories that lie elsewhere: in object stores and on the Hugging Face Hub."""
