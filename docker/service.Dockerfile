# The service without engines: pages, API, command line. It has no torch and starts nothing on a GPU.
# Build it with `make image-service`; .dockerignore keeps everything out that it does not need.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
ENV UV_PROJECT_ENVIRONMENT=/opt/equipoise UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never
RUN python -m pip install --no-cache-dir --target /opt/uv uv==0.13.9
COPY pyproject.toml uv.lock ./
COPY evals/ evals/
COPY service/ service/
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-editable --extra postgres

FROM python:3.11-slim-bookworm
COPY --from=build /opt/equipoise /opt/equipoise
RUN useradd --uid 10001 --no-create-home --home-dir /data equipoise \
    && install --directory --owner equipoise --mode 700 /data /cache
ENV PATH=/opt/equipoise/bin:$PATH HOME=/data PYTHONDONTWRITEBYTECODE=1 \
    EQUIPOISE_DATA=/data EQUIPOISE_CACHE=/cache EQUIPOISE_HOST=0.0.0.0 EQUIPOISE_WORKER=false \
    EQUIPOISE_DEVICE=cpu EQUIPOISE_GSM8K=shipped HF_HUB_OFFLINE=1
USER 10001
VOLUME ["/data", "/cache"]
EXPOSE 8642
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8642/readyz', timeout=4)"]
ENTRYPOINT ["equipoise"]
CMD ["serve"]
