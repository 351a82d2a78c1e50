"""Consumer groups and producer ids: decisions first, persistence second, answers last."""
