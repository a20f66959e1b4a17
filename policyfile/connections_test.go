package policyfile

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

func connections(text string) (Connections, error) {
	f, err := Parse("x", []byte("server: {connections: "+text+"}\nrules: [{name: a, limit: 10/s}]"))
	if err != nil {
		return Connections{}, err
	}
	return f.Server.Connections, nil
}

func TestConnections(t *testing.T) {
	got, err := connections("{accepts: 20/s burst 50, open: 100, key: client.ip/56, exempt: [private, 192.0.2.7]}")
	if err != nil {
		t.Fatal(err)
	}
	want := Connections{
		Accepts: spillgate.Limit{Rate: 20, Period: time.Second, Burst: 50}, Open: 100, Prefix: 56,
		Exempt: []string{"private", "192.0.2.7"}, Networks: got.Networks,
	}
	if !reflect.DeepEqual(got, want) || !got.Limited() {
		t.Errorf("%+v, want %+v", got, want)
	}
	for addr, exempt := range map[string]bool{"10.1.2.3": true, "192.0.2.7": true, "192.0.2.8": false} {
		if got.Networks.Contains(netip.MustParseAddr(addr)) != exempt {
			t.Errorf("%s is exempt: %t", addr, !exempt)
		}
	}
	if got, err := connections("{open: 1, key: client.ip}"); err != nil || !reflect.DeepEqual(got, Connections{Open: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	if new(Connections).Limited() {
		t.Error("the zero value limits")
	}
}

func TestConnectionsThatCantBe(t *testing.T) {
	for text, says := range map[string]string{
		`{accepts: "10/s queue 5"}`:                    "makes callers wait",
		`{accepts: unlimited}`:                         "refuses no connection",
		`{accepts: 5 at once}`:                         "write open: 5",
		`{accepts: 0/s burst 5}`:                       "accepts",
		`{open: 0}`:                                    "1 to 1048576",
		`{open: 1048577}`:                              "1 to 1048576",
		`{open: 5, key: client.ip lower}`:              "only the peer's address is known",
		`{open: 5, key: client.ip/16}`:                 "32 to 128",
		`{open: 5, key: [client.ip, host]}`:            "key",
		`{open: 5, exempt: [loopback, unix]}`:          "no unix socket",
		`{key: client.ip}`:                             "nothing is limited",
		`{open: 5, client_ip: {trusted: private}}`:     "unknown key",
		`{open: 5, exempt: 10.1.2.3/8}`:                "10.0.0.0/8",
		`[]`:                                           "want the connections part",
		`{accepts: 1/s, accepts: 2/s}`:                 "twice",
		`{open: 5, exempt: []}`:                        "empty",
		`{accepts: 1000/calendar day in Europe/Bielo}`: "IANA name",
	} {
		if _, err := connections(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q in it", text, err, says)
		}
	}
}
