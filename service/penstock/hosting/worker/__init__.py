"""The model process's side: it builds the backend and answers the link."""
