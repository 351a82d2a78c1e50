"""The API's documentation for people: Swagger UI without a network, and the document it shows."""
