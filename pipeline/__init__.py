"""The Spark pipeline: a source and sink for topics, and the jobs on top of them. A program apart from the broker."""
