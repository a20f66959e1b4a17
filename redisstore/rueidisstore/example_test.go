package rueidisstore_test

import (
	"log"

	"github.com/redis/rueidis"

	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/rueidisstore"
)

// Everything beyond the client is as in the examples of redisstore.
func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := rueidisstore.New(client, redisstore.Prefix("shop:"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
