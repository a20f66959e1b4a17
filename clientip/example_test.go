package clientip_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/spillgate/spillgate/clientip"
)

func Example() {
	resolver, err := clientip.New(clientip.Options{
		Trusted: []string{"private", "192.0.2.0/24"},
		Header:  clientip.XForwardedFor,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The client wrote the first entry itself, our proxies the other two.
	header := http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9", "192.0.2.80"}}
	fmt.Println(resolver.Addr("10.0.0.1:4711", header))

	// Past the proxies the same header says nothing.
	fmt.Println(resolver.Addr("198.51.100.7:4711", header))
	// Output:
	// 203.0.113.9
	// 198.51.100.7
}

func ExampleNew_refused() {
	_, err := clientip.New(clientip.Options{Header: "X-Real-IP"})
	fmt.Println(err)
	// Output:
	// clientip: header "X-Real-IP": no trusted network: anybody can send this header, so name the proxies that set it, such as "loopback", "private" or a CIDR
}

func ExampleGroup() {
	addr := netip.MustParseAddr("2001:db8:1:2:a1b2::7")
	fmt.Println(clientip.Group(addr, 0, 0))
	fmt.Println(clientip.Group(addr, 0, 48))
	fmt.Println(clientip.Group(netip.MustParseAddr("::ffff:203.0.113.9"), 0, 0))
	// Output:
	// 2001:db8:1:2::/64
	// 2001:db8:1::/48
	// 203.0.113.9/32
}

func ExampleParseNetworks() {
	deny, err := clientip.ParseNetworks("198.51.100.0/25", "198.51.100.128/25", "2001:db8::7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(deny.Len(), deny.Contains(netip.MustParseAddr("::ffff:198.51.100.200")))

	_, err = clientip.ParseNetworks("198.51.100.1/24")
	fmt.Println(err)
	// Output:
	// 2 true
	// clientip: network "198.51.100.1/24" (entry 1): has bits beyond /24: write 198.51.100.0/24, or the address alone
}
