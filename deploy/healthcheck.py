"""The HEALTHCHECK of deploy/Dockerfile: exit code 0 while this container's server can be asked.

Whoever ends an unhealthy container would end one that answers but refuses writes, since its disk is
full or Redis does not answer, and nobody would be answered any more: `?writes=false`.

It reads the settings as the server does, but for flags, which it cannot see: give ports in the
environment or in the file of BLOOMERY_CONFIG.
"""

import http.client
import ssl
import sys

from bloomery.service.config import configuration

SECONDS = 4

settings = configuration.read().settings
server = http.client.HTTPConnection("127.0.0.1", settings.http_port, timeout=SECONDS)
if settings.tls_cert:
    # Of this machine to itself: the certificate is for the names that others have for it.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server = http.client.HTTPSConnection(
        "127.0.0.1", settings.http_port, timeout=SECONDS, context=context
    )
try:
    server.request("GET", "/readyz?writes=false")
    status = server.getresponse().status
except OSError as problem:
    sys.exit(f"port {settings.http_port}: {problem}")
sys.exit(0 if status == http.client.OK else f"/readyz is {status}")
