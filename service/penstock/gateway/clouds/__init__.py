"""Endpoints of cloud services: their paths and content types, over the routes of the gateway."""
