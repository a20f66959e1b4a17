package policyfile

import (
	"fmt"
	"strings"
	"testing"
)

func TestWarningsOfTheServer(t *testing.T) {
	const rules = "\nrules: [{name: a, key: client.ip, limit: 10/s}]"
	for server, want := range map[string]string{
		"upstream: http://127.0.0.1:9000":                                          "",
		"upstream: http://127.0.0.1:8080":                                          "1:20 loop",
		"upstream: http://localhost:8080/base":                                     "1:20 loop",
		"upstream: http://127.0.0.2:8080":                                          "",
		"upstream: http://a.example:8080":                                          "",
		"listen: :80, upstream: h2c://127.0.0.1":                                   "1:33 loop",
		"listen: :80, upstream: http://127.0.0.1":                                  "1:33 loop",
		`listen: 0.0.0.0:80, upstream: "http://[::1]"`:                             "1:40 loop",
		`listen: "[::1]:80", upstream: http://localhost`:                           "1:40 loop",
		"listen: a.example:443, upstream: https://A.example":                       "1:43 loop",
		"listen: :8443, upstream: https://127.0.0.1":                               "",
		"client_ip: {trusted: unix, from: x-forwarded-for}":                        "1:31 nobody-trusted",
		"client_ip: {trusted: [unix, 192.0.2.1], from: x-forwarded-for}":           "",
		"upstream: http://127.0.0.1:9000, client_ip: {trusted: [unix], from: x-a}": "1:64 nobody-trusted",
		"client_ip: {trusted: private, from: x-reel-ip}":                           "1:46 near-header",
		"client_ip: {trusted: private, from: X_Real_IP}":                           "1:46 near-header",
		"client_ip: {trusted: private, from: CF-Conecting-IP}":                     "1:46 near-header",
		"client_ip: {trusted: private, from: true-cleint-ip}":                      "1:46 near-header",
		"client_ip: {trusted: private, from: X-Real-IP}":                           "",
		"client_ip: {trusted: private, from: x-peer-ip}":                           "",
		"client_ip: {trusted: private, from: x-forwarded-for}":                     "",
		"client_ip: {trusted: private, from: shop-visitor}":                        "",
	} {
		f, err := Parse("x", []byte("server: {"+server+"}"+rules))
		if err != nil {
			t.Errorf("%s: %v", server, err)
			continue
		}
		var got []string
		for _, w := range f.Warnings {
			got = append(got, fmt.Sprintf("%d:%d %s", w.Line, w.Column, w.Code))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", server, got, want)
		}
	}
	f, err := Parse("x", []byte("server: {listen: :9000, upstream: http://127.0.0.1:9001}\nrules: [{name: a, key: client.ip, limit: 10/s}, {name: b, limit: 5/s, backup: {upstream: http://127.0.0.1:9000, match: {client.ip: 10.0.0.0/8}}}]"))
	if err != nil || len(f.Warnings) != 1 || f.Warnings[0].Code != "loop" || !strings.HasPrefix(f.Warnings[0].Msg, "backup: ") {
		t.Errorf("%v %+v", err, f)
	}
}
