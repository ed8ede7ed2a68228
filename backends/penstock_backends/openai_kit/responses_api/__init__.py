"""The Responses API: its requests as chats, and answers as items that grow by events."""
