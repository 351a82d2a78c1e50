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
ENV PATH=/opt/sluice/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SLUICE_DATA_DIR=/data
VOLUME /data
EXPOSE 8082 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8082/readyz', timeout=2)"]
ENTRYPOINT ["sluice", "serve"]
# What is opened, and that it is open to all, is in sight: `docker ps --no-trunc`, `docker inspect`, `ps`. Arguments
# after the image's name replace these, so listeners that a user names are refused without --insecure of their own.
CMD ["--listener", "http://0.0.0.0:8082", "--listener", "kafka://0.0.0.0:9092", "--insecure"]
