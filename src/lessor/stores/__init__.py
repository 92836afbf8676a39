"""One module or folder a store. They don't know each other; `registry` finds them by the URL's scheme."""
