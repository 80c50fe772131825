# SGLang's official image with the plugin, and the service that starts its engines: one container per GPU host.
# Build it with `make image-engine`. The base is v0.5.17, the version that the evidence of H200s was measured with
# (docs/evidence), for CUDA 13; its digest is the one that public users of the tag pin (docs/deployment.md).
FROM lmsysorg/sglang:v0.5.17@sha256:16aba8925507e631e1dc1e23d95d026533602591775f6a8db68b74ee99746155
WORKDIR /opt/src
ENV UV_PROJECT_ENVIRONMENT=/opt/equipoise UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never
RUN python3 -m pip install --no-cache-dir --target /opt/uv uv==0.13.9
COPY pyproject.toml uv.lock ./
COPY evals/ evals/
COPY service/ service/
COPY backends/ backends/
# Two environments, as everywhere: the service's own, which never gets torch, and a folder with the plugin alone, which
# engines get in front of what the image brings.
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-editable --extra postgres --extra ray --python /usr/bin/python3 \
    && /opt/uv/bin/uv pip install --no-cache --no-deps --python /usr/bin/python3 --target /opt/plugin ./backends \
    && install --directory --mode 700 /data /cache
ENV PATH=/opt/equipoise/bin:$PATH HOME=/cache \
    EQUIPOISE_DATA=/data EQUIPOISE_CACHE=/cache EQUIPOISE_HOST=0.0.0.0 EQUIPOISE_DEVICE=cuda \
    EQUIPOISE_ENGINE_PYTHON=/usr/bin/python3 EQUIPOISE_PLUGIN_PATH=/opt/plugin \
    EQUIPOISE_GSM8K=shipped HF_HUB_OFFLINE=1
VOLUME ["/data", "/cache"]
EXPOSE 8642
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/equipoise/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8642/readyz', timeout=4)"]
ENTRYPOINT ["equipoise"]
CMD ["serve"]
