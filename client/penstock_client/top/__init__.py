"""`penstock top`: a live view of a server on a terminal, from its public endpoints only.

It imports nothing of the server, so that it shows any server of Triton's protocols.
"""
