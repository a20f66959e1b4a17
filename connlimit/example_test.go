package connlimit_test

import (
	"fmt"
	"net"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/connlimit"
)

func Example() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	limited := connlimit.New(ln, connlimit.Accepts(spillgate.Must("20/s burst 50")), connlimit.Open(1))
	defer limited.Close()

	go func() {
		for range 2 { // two connections of one address
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				fmt.Println(err)
				return
			}
			defer c.Close()
		}
		limited.Close()
	}()
	for {
		c, err := limited.Accept()
		if err != nil {
			break
		}
		defer c.Close()
	}
	fmt.Println(limited.Stats().Accepted, "accepted")
	// Output: 1 accepted
}
