# The image of the worker, the deployments and the report site: Day0 as locked. The compiler is for inductor.
FROM python:3.11.13-slim-bookworm

WORKDIR /opt/day0
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 day0 && install --directory --owner day0 /var/lib/day0/store
COPY requirements.lock pyproject.toml README.md ./
RUN pip install --no-cache-dir --requirement requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
USER day0
ENV DAY0_STORE=/var/lib/day0/store
CMD ["day0", "doctor"]
