"""A device gateway: several python-socketio servers, and one connection for each device among all of them."""
