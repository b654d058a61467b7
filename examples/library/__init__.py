"""An archive library: a web API, a file watcher and jobs that change the same files, in several processes."""
