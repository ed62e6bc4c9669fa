"""What is particular to S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardpool.errors import ConfigurationError, SeedError
from shardpool.seed.s3 import S3Seed

BIG = "model-00001-of-00001.safetensors"


@pytest.fixture
def seed(request, gateway):
    """Of the test's own bucket where it asks for one."""
    name = request.getfixturevalue("bucket").name if "bucket" in request.fixturenames else "models"
    request.getfixturevalue("shared_bucket")
    seed = S3Seed(f"s3://{name}/some/tiny", endpoint=gateway.url)
    yield seed
    seed.close()


def read(seed: S3Seed, path: str = BIG, offset: int = 0, length: int = 1000) -> bytes:
    content = bytearray(length)
    seed.read_into(path, offset, memoryview(content))
    return bytes(content)


def test_object_changed_since_the_listing_is_refused_though_its_size_is_the_same(seed, bucket, tree) -> None:
    seed.files()
    bucket.put_object(Key=f"some/tiny/{BIG}", Body=bytes(len(tree[BIG])))
    with pytest.raises(SeedError, match="has changed since it was listed") as failure:
        read(seed)
    assert not failure.value.transient


def test_object_deleted_since_the_listing_is_named(seed, bucket) -> None:
    seed.files()
    bucket.Object("some/tiny/config.json").delete()
    with pytest.raises(SeedError, match=r"config\.json .* is gone|config\.json .*has changed"):
        read(seed, "config.json", 0, 1)


def test_prefix_ends_at_a_slash(seed) -> None:
    assert "-other/config.json" not in {file.path for file in seed.files()}
    assert len(seed.files()) == 5


@pytest.mark.parametrize("form", ["s3://{}/some/tiny/", "s3://{}//some/tiny"])
def test_slashes_around_the_prefix_do_not_matter(shared_bucket, gateway, form: str) -> None:
    assert len(S3Seed(form.format(shared_bucket.name), endpoint=gateway.url).files()) == 5


def test_whole_bucket_is_a_seed_too(shared_bucket, gateway) -> None:
    paths = {file.path for file in S3Seed(f"s3://{shared_bucket.name}", endpoint=gateway.url).files()}
    assert "some/tiny-other/config.json" in paths
    assert f"some/tiny/{BIG}" in paths


def test_listing_goes_through_all_pages(shared_bucket, gateway) -> None:
    gateway.page = 2
    assert len(S3Seed("s3://models/some/tiny", endpoint=gateway.url).files()) == 5


def test_digest_of_an_upload_in_parts_is_not_taken_for_the_files(bucket, gateway) -> None:
    client = bucket.meta.client
    upload = client.create_multipart_upload(Bucket=bucket.name, Key="parts/x.bin", ChecksumAlgorithm="SHA256")
    part = client.upload_part(
        Bucket=bucket.name,
        Key="parts/x.bin",
        UploadId=upload["UploadId"],
        PartNumber=1,
        Body=b"x",
        ChecksumAlgorithm="SHA256",
    )
    client.complete_multipart_upload(
        Bucket=bucket.name,
        Key="parts/x.bin",
        UploadId=upload["UploadId"],
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    (file,) = S3Seed(f"s3://{bucket.name}/parts", endpoint=gateway.url).files()
    assert (file.size, file.sha256) == (1, "")


@pytest.mark.parametrize("prefix", ["nothing", "some/tiny/config.json"])
def test_empty_prefix_is_refused(shared_bucket, gateway, prefix: str) -> None:
    with pytest.raises(SeedError, match="holds no object; check the prefix"):
        S3Seed(f"s3://{shared_bucket.name}/{prefix}", endpoint=gateway.url).files()


def test_missing_bucket_is_refused(gateway) -> None:
    with pytest.raises(SeedError, match=r"NoSuchBucket.*AWS_REGION") as failure:
        S3Seed("s3://nobodys-bucket/x", endpoint=gateway.url).files()
    assert not failure.value.transient


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "s3:GetObject"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "AWS_SESSION_TOKEN"),
        (301, "PermanentRedirect", "AWS_REGION"),
        (416, "InvalidRange", "shorter than its listing"),
    ],
)
def test_refusal_of_the_store_says_what_to_do(seed, gateway, status: int, code: str, words: str) -> None:
    seed.files()
    gateway.fault({"match": BIG, "status": status, "code": code})
    with pytest.raises(SeedError, match=words) as failure:
        read(seed)
    assert not failure.value.transient
    assert "very-secret" not in str(failure.value)


def test_store_that_ignores_ranges_is_refused(seed, gateway) -> None:
    seed.files()
    gateway.fault({"match": BIG, "ignore_range": True})
    with pytest.raises(SeedError, match="ignores ranges"):
        read(seed)


def test_no_credentials_say_which_to_give(shared_bucket, gateway, monkeypatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SeedError, match=r"without credentials.*AWS_ACCESS_KEY_ID"):
        S3Seed(f"s3://{shared_bucket.name}/some/tiny", endpoint=gateway.url).files()


def test_broken_configuration_is_refused_when_the_seed_is_made(monkeypatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigurationError, match="nobody"):
        S3Seed("s3://bucket/x")


@pytest.mark.parametrize(
    ("endpoint", "configured", "host", "path"),
    [
        ("http://minio.storage:9000", "", "minio.storage:9000", "/models/x"),
        ("", "", "models.s3.amazonaws.com", "/x"),
        ("https://oss.example", "virtual", "models.oss.example", "/x"),
    ],
)
def test_bucket_is_in_the_path_of_a_custom_endpoint_only(
    monkeypatch, tmp_path: Path, endpoint: str, configured: str, host: str, path: str
) -> None:
    if configured:
        (tmp_path / "no-config").write_text(f"[default]\ns3 =\n  addressing_style = {configured}\n")
    seed = S3Seed("s3://models/x", endpoint=endpoint, region="eu-west-1")
    address = seed._client.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "x"})
    seed.close()
    assert address.partition("://")[2].startswith(host + path)


@pytest.mark.parametrize("address", ["s3://", "s3:///x", "s3://a/x", "s3://bad bucket/x", "s3://-x/y"])
def test_address_without_a_bucket_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="names no bucket"):
        S3Seed(address)


@pytest.mark.parametrize("endpoint", ["minio:9000", "ftp://minio"])
def test_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="AWS_ENDPOINT_URL_S3"):
        S3Seed("s3://bucket/x", endpoint=endpoint)
