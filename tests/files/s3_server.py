"""An S3-protocol server: moto on a free port of the loopback, or the bucket that a variable names."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx

from tests.notify.servers import LeashedServer

VARIABLE = "HOLDFAST_TEST_S3_URL"
"""A bucket to test with instead, like s3://test?endpoint=…&allow_http=true; credentials from AWS_* as usual."""

BUCKET = "holdfast-test"


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a bucket is, the credentials for it, and what the server can do."""

    base: str
    options: str
    access_key: str
    secret_key: str
    endpoint: str = ""
    """Of moto; empty for a server of which nothing is known."""

    def url(self, prefix: str, bucket: str | None = None) -> str:
        """Return the URL of a prefix in the bucket, or of another bucket."""
        base = f"s3://{bucket}" if bucket else self.base
        return f"{base}/{prefix}?{self.options}"

    @contextmanager
    def signatures_checked(self) -> Iterator[tuple[str, str]]:
        """Have every request authenticated; give the credentials of a user who may do everything."""
        if not self.endpoint:
            yield self.access_key, self.secret_key
            return
        self._iam(Action="CreateUser", UserName="worker")
        policy = (
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
        )
        self._iam(
            Action="PutUserPolicy", UserName="worker", PolicyName="all", PolicyDocument=policy
        )
        answer = self._iam(Action="CreateAccessKey", UserName="worker")
        found = {
            each.tag.rpartition("}")[2]: each.text for each in ElementTree.fromstring(answer).iter()
        }
        self._authenticate_after("0")
        try:
            yield str(found["AccessKeyId"]), str(found["SecretAccessKey"])
        finally:
            self._authenticate_after("inf")
            self._iam(
                Action="DeleteAccessKey", UserName="worker", AccessKeyId=str(found["AccessKeyId"])
            )
            self._iam(Action="DeleteUserPolicy", UserName="worker", PolicyName="all")
            self._iam(Action="DeleteUser", UserName="worker")

    def _authenticate_after(self, requests: str) -> None:
        httpx.post(f"{self.endpoint}/moto-api/reset-auth", content=requests).raise_for_status()

    def _iam(self, **parameters: str) -> str:
        scope = "Credential=any/20260101/us-east-1/iam/aws4_request"
        headers = {
            "authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
            "content-type": "application/x-www-form-urlencoded",
        }
        answer = httpx.post(self.endpoint, headers=headers, content=urlencode(parameters))
        return answer.raise_for_status().text


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Give the server of a test run."""
    named = os.environ.get(VARIABLE)
    if named:
        base, _, options = named.partition("?")
        keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        yield S3Server(base.rstrip("/"), options, *keys)
        return
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    with LeashedServer(lambda port: [*command, str(port)]) as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        httpx.put(f"{endpoint}/{BUCKET}").raise_for_status()
        options = f"endpoint={endpoint}&region=us-east-1&allow_http=true"
        yield S3Server(f"s3://{BUCKET}", options, "holdfast", "any-secret", endpoint)
