"""A forum whose workers make thumbnails: expensive work that must be done once, by threads of several processes."""
