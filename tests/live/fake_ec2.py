"""Changes of a test to moto's EC2 besides what its API takes: spot instances, their prices, and what Amazon takes away."""

from typing import Any

import boto3

REGION = "eu-west-1"


class FakeEc2:
    """The instances of one region, changed as a user or Amazon would."""

    def __init__(self, url: str) -> None:
        self.client = boto3.client("ec2", endpoint_url=url, region_name=REGION)
        self._image = self.client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def launch(self, kind: str, **tags: str) -> str:
        """Start an instance; its id."""
        said: list[Any] = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]
        made = self.client.run_instances(
            ImageId=self._image, InstanceType=kind, MinCount=1, MaxCount=1, TagSpecifications=said if tags else []
        )
        return str(made["Instances"][0]["InstanceId"])

    def launch_spot(self, kind: str) -> str:
        """Have an instance by a request for a spot instance; its id."""
        specification: Any = {"ImageId": self._image, "InstanceType": kind}
        made = self.client.request_spot_instances(
            SpotPrice="5", InstanceCount=1, Type="one-time", LaunchSpecification=specification
        )
        request = made["SpotInstanceRequests"][0]["SpotInstanceRequestId"]
        said = self.client.describe_spot_instance_requests(SpotInstanceRequestIds=[request])
        return str(said["SpotInstanceRequests"][0]["InstanceId"])
