"""Amazon's EC2 on a socket: moto's server, which checks signatures and permissions, and a metadata service.

`serve PORT METADATA_PORT TLS_PORT CERTIFICATE ADDRESS` prints one line of JSON when it serves, and runs until
it is ended. The instance has ADDRESS; at TLS_PORT the API has TLS, with a certificate written to CERTIFICATE. At the port of the metadata, a POST of {"service", "method", "parameters"} to
/administrator calls that with all permissions. `version` prints moto's version.

Moto lets every route be active. Here a route whose interface is gone is a blackhole, as it is with EC2.
"""

import json
import socket
import ssl
import sys
import uuid
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.request import Request, urlopen

REGION = "eu-central-1"
# Without a role of its own, an instance may do nothing.
PERMISSIONS = ["DescribeRouteTables", "CreateRoute", "ReplaceRoute", "DeleteRoute", "ModifyNetworkInterfaceAttribute"]
ADMINISTRATOR = ["*"]


def client(service, endpoint, keys):
    import boto3

    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint, **dict(zip(names, keys)))


def policy(actions):
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def administrator(iam):
    iam.create_user(UserName="administrator")
    iam.put_user_policy(UserName="administrator", PolicyName="all", PolicyDocument=policy(ADMINISTRATOR))
    key = iam.create_access_key(UserName="administrator")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def role(iam):
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = iam.create_role(RoleName="node", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    actions = [f"ec2:{action}" for action in PERMISSIONS]
    iam.put_role_policy(RoleName="node", PolicyName="routes", PolicyDocument=policy(actions))
    return arn


def network(ec2, address):
    """A VPC with two nodes, of which the first has the address, in one subnet."""
    prefix = address.rsplit(".", 1)[0]
    vpc = ec2.create_vpc(CidrBlock=f"{prefix}.0/24")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"{prefix}.0/24")["Subnet"]["SubnetId"]
    create = lambda **more: ec2.create_network_interface(SubnetId=subnet, **more)["NetworkInterface"]
    own, other = create(PrivateIpAddress=address), create()
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    table = ec2.describe_route_tables(Filters=filters)["RouteTables"][0]["RouteTableId"]
    ids = {"vpc": vpc, "subnet": subnet, "own": own["NetworkInterfaceId"], "other": other["NetworkInterfaceId"]}
    return {**ids, "table": table, "mac": own["MacAddress"], "address": address}


def credentials(sts, arn):
    made = sts.assume_role(RoleArn=arn, RoleSessionName="i-0")["Credentials"]
    end = (datetime.now(timezone.utc) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = {"AccessKeyId": made["AccessKeyId"], "SecretAccessKey": made["SecretAccessKey"]}
    return {"Code": "Success", "Type": "AWS-HMAC", **keys, "Token": made["SessionToken"], "Expiration": end}


def metadata(facts, role_credentials):
    """The items that the agent may ask for."""
    interface = f"network/interfaces/macs/{facts['mac']}"
    return {
        "placement/region": REGION,
        "services/domain": "amazonaws.com",
        "network/interfaces/macs/": f"{facts['mac']}/",
        f"{interface}/local-ipv4s": facts["address"],
        f"{interface}/interface-id": facts["own"],
        f"{interface}/subnet-id": facts["subnet"],
        f"{interface}/vpc-id": facts["vpc"],
        "iam/security-credentials/": "node",
        "iam/security-credentials/node": json.dumps(role_credentials),
    }


def metadata_server(port, items, clients):
    """Version 2 alone: a request without a token that was asked for by PUT gets 401."""
    tokens = set()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, text=""):
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self):
            seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if self.path != "/latest/api/token" or not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
                return self.answer(400)
            if self.headers.get("X-Forwarded-For"):
                return self.answer(403)
            tokens.add(uuid.uuid4().hex)
            self.answer(200, sorted(tokens)[0])

        def do_GET(self):
            if self.headers.get("X-aws-ec2-metadata-token") not in tokens:
                return self.answer(401)
            item = items.get(self.path.removeprefix("/latest/meta-data/"))
            self.answer(404) if item is None else self.answer(200, item)

        def do_POST(self):
            wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                result = getattr(clients[wish["service"]], wish["method"])(**wish["parameters"])
            except Exception as error:
                return self.answer(400, repr(error))
            self.answer(200, json.dumps(result, default=str))

        def log_message(self, *_):
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def certificate(path):
    """Writes a key and a certificate of 127.0.0.1 to one file."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "EC2")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with open(path, "wb") as file:
        file.write(key.private_bytes(pem, *plain) + made.public_bytes(pem))


def relay(tls_port, path, port):
    """Takes TLS off connections to the API."""
    certificate(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    listener = socket.create_server(("127.0.0.1", tls_port))

    def copy(source, sink):
        try:
            while part := source.recv(65536):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve_one(plain):
        try:
            with context.wrap_socket(plain, server_side=True) as outer:
                with socket.create_connection(("127.0.0.1", port)) as inner:
                    Thread(target=copy, args=(outer, inner), daemon=True).start()
                    copy(inner, outer)
        except OSError:
            pass

    while True:
        Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()


def blackholes():
    from moto.ec2.models.route_tables import Route

    def state(route):
        gone = route.interface and route.interface.id not in route.route_table.ec2_backend.enis
        return "blackhole" if gone else "active"

    Route.state = property(state)


def serve(port, metadata_port, tls_port, path, address):
    from moto.server import ThreadedMotoServer

    blackholes()
    ThreadedMotoServer("127.0.0.1", port, verbose=False).start()
    endpoint = f"http://127.0.0.1:{port}"
    root = ("root", "root")
    facts = network(client("ec2", endpoint, root), address)
    iam = client("iam", endpoint, root)
    keys, arn = administrator(iam), role(iam)
    items = metadata(facts, credentials(client("sts", endpoint, root), arn))
    # From here on every request needs a valid signature and the permission.
    plain = {"Content-Type": "text/plain"}
    urlopen(Request(f"{endpoint}/moto-api/reset-auth", data=b"0", headers=plain, method="POST")).close()
    Thread(target=relay, args=(tls_port, path, port), daemon=True).start()
    clients = {service: client(service, endpoint, keys) for service in ("ec2", "iam")}
    Thread(target=metadata_server(metadata_port, items, clients).serve_forever, daemon=True).start()
    print(json.dumps({**facts, "administrator": keys}), flush=True)
    Event().wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["version"]:
        import moto.server

        print(moto.__version__)
    else:
        _, verb, port, metadata_port, tls_port, path, address = sys.argv
        assert verb == "serve", verb
        serve(int(port), int(metadata_port), int(tls_port), path, address)
