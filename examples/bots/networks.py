r"""Makes a map of networks from a public table on its standard input: of ASNs, or of countries.

    curl -sSfO https://iptoasn.com/data/ip2asn-combined.tsv.gz && gunzip -f ip2asn-combined.tsv.gz \
      && python3 networks.py <ip2asn-combined.tsv >asn.map.new && mv asn.map.new maps/asn.map

A line of the table has tabs or commas between its parts: the first and the last address of a range, and then values, of
which the third part is taken, or the one that an argument names (4: the country of ip2asn). Or it has a network and
its value, as in the dumps of pyasn. Networks without a value are left out: 0, None, or nothing. A table without any
network is an error, so that a download that has failed does not empty the map.
"""

import ipaddress
import sys

NOTHING = ("", "0", "-", "None", "Unknown")


def networks(line, column):
    """The networks of a line, and their value."""
    parts = [part.strip().strip('"') for part in line.replace(",", "\t").split("\t")]
    if "/" in parts[0]:
        return [ipaddress.ip_network(parts[0])], parts[1]
    first, last = map(ipaddress.ip_address, parts[:2])
    return ipaddress.summarize_address_range(first, last), parts[column - 1]


def main():
    column = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    is_empty = True
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip() or line[0] in "#;":
            continue
        try:
            found, value = networks(line, column)
            if value not in NOTHING:
                is_empty = False
                sys.stdout.writelines(f"{network} {value}\n" for network in found)
        except (IndexError, TypeError, ValueError) as error:
            sys.exit(f"line {number}: {error}: {line.strip()}")
    if is_empty:
        sys.exit("the table has no networks")


main()
