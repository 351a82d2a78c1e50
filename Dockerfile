# Build: a wheel of the project and all it needs, in an environment of its own. The image has no C compiler, so the
# optional extension for Spark is left out; the broker does not use it.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md pyspark_sluice.py pytest_sluice.py ./
COPY app app
COPY core core
COPY migrations migrations
COPY pipeline pipeline
RUN python -m venv /opt/sluice && /opt/sluice/bin/pip install --no-cache-dir .

# Run: this environment alone, as a user without rights.
FROM python:3.12-slim
RUN groupadd --system --gid 10001 sluice \
    && useradd --system --uid 10001 --gid sluice --no-create-home --shell /usr/sbin/nologin sluice \
    && install --directory --owner=sluice --group=sluice --mode=0700 /data
COPY --from=build /opt/sluice /opt/sluice
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
# SLUICE_URL and SLUICE_CA are for commands that `docker exec` runs.
ENV PATH=/opt/sluice/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SLUICE_DATA_DIR=/data \
    SLUICE_URL=https://127.0.0.1:8082 \
    SLUICE_CA=/data/tls-default.pem
VOLUME /data
EXPOSE 8082 9092
STOPSIGNAL SIGTERM
# It finds the listeners in the data directory, whatever the arguments of the container are.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["sluice", "health"]
ENTRYPOINT ["sluice", "serve"]
# What is opened is in sight: `docker ps --no-trunc`, `docker inspect`, `ps`. Clients log in, over TLS. Arguments after
# the image's name replace these, so listeners that a user names are refused unless their clients log in, or --insecure
# is there as well.
CMD ["--tls", "auto", \
     "--listener", "https://0.0.0.0:8082?auth=basic,token", \
     "--listener", "kafka://0.0.0.0:9092?auth=scram-sha-256,scram-sha-512,plain&tls"]
