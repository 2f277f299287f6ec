// The official Go client (rocketmq-client-go v2), as bench/three_clients.py drives it: sends, or drains a topic, and prints one JSON object with the
// CPU time of this process.
//
//	go_client send NAMESRV TOPIC COUNT IN_FLIGHT BYTES
//	go_client consume NAMESRV TOPIC COUNT
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	must(err)
	return found
}

func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// meter takes the time between the first tenth and the last message.
type meter struct {
	count, begin, seen int64
	cpu0               time.Duration
	wall0              time.Time
	done               chan struct{}
}

func newMeter(count int) *meter {
	return &meter{count: int64(count), begin: int64(count / 10), done: make(chan struct{})}
}

func (m *meter) one() {
	switch atomic.AddInt64(&m.seen, 1) {
	case m.begin:
		m.cpu0, m.wall0 = cpu(), time.Now()
	case m.count:
		measured := float64(m.count - m.begin)
		fmt.Printf("{\"cpu_us\": %.2f, \"per_second\": %.0f}\n",
			float64((cpu()-m.cpu0).Nanoseconds())/1e3/measured, measured/time.Since(m.wall0).Seconds())
		close(m.done)
	}
}

func send(namesrv, topic string, count, inFlight, size int) {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{namesrv}),
		producer.WithGroupName("go_producer"),
		producer.WithCompressMsgBodyOverHowmuch(1<<30),
	)
	must(err)
	must(made.Start())
	body := make([]byte, size)
	rand.Read(body)
	counted := newMeter(count)
	places := make(chan struct{}, inFlight)
	for sent := 0; sent < count; sent++ {
		places <- struct{}{}
		message := primitive.NewMessage(topic, body).WithTag("TagA")
		must(made.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, failure error) {
			must(failure)
			<-places
			counted.one()
		}, message))
	}
	<-counted.done
}

func consume(namesrv, topic string, count int) {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{namesrv}),
		consumer.WithGroupName(fmt.Sprintf("go_consumer_%d", os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	counted := newMeter(count)
	must(made.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for range messages {
			counted.one()
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
	<-counted.done
}

func main() {
	rlog.SetLogLevel("error")
	namesrv, topic, count := os.Args[2], os.Args[3], number(os.Args[4])
	if os.Args[1] == "send" {
		send(namesrv, topic, count, number(os.Args[5]), number(os.Args[6]))
	} else {
		consume(namesrv, topic, count)
	}
}
