"""Models written in Python: `model.py` files made for Triton's Python backend run unchanged.

Empty, since a model's process imports this without the backend, which is the server's part.
"""
