"""OpenAI's API for models whose engine brings none: an ASGI application over a `Generator`.

Importing this needs nothing; `application` needs the extra `openai`.
"""
