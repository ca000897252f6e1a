"""The HTTP server's application: `make_app` in `app.py` puts it together; only `loadfactor up` imports it."""
