"""Types that listeners, surfaces and the broker share."""
