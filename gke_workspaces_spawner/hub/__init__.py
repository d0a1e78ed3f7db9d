"""The only code that touches JupyterHub's insides: store, port, credentials, guest client, supervisor and the mixin."""
