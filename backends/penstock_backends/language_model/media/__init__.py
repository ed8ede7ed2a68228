"""Media of requests: fetched by URL within bounds, and images decoded."""
