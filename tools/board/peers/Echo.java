// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// java Echo.java server|client nio|aio|blocking ADDRESS PORT [FILE]: a server that sends back what it is sent, and a client that
// compares. As each of Java's three ways to use sockets would do it.

import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

public class Echo {
  public static void main(String[] words) throws Exception {
    var address = new InetSocketAddress(words[2], Integer.parseInt(words[3]));
    if (words[0].equals("server")) {
      switch (words[1]) {
        case "nio" -> serveNio(address);
        case "aio" -> serveAio(address);
        default -> serveBlocking(address);
      }
      return;
    }
    byte[] data = Files.readAllBytes(Path.of(words[4]));
    var threads = Executors.newFixedThreadPool(6);
    var done = new ArrayList<Future<byte[]>>();
    for (int number = 0; number < 6; ++number) {
      done.add(threads.submit(() -> switch (words[1]) {
        case "nio" -> talkNio(address, data);
        case "aio" -> talkAio(address, data);
        default -> talkBlocking(address, data);
      }));
    }
    for (var each : done) {
      if (!Arrays.equals(each.get(), data)) throw new IOException("not the bytes that were sent");
    }
    threads.shutdown();
    closedWhileRead(address);
    System.out.println("as it was sent");
  }

  // Java closes what another thread sleeps in: that thread has to wake.
  static void closedWhileRead(InetSocketAddress address) throws Exception {
    for (int number = 0; number < 20; ++number) {
      var socket = new Socket(address.getAddress(), address.getPort());
      var channel = SocketChannel.open(address);
      var woken = new CountDownLatch(2);
      new Thread(() -> {
        try { socket.getInputStream().read(); } catch (IOException expected) { woken.countDown(); }
      }).start();
      new Thread(() -> {
        try { channel.read(ByteBuffer.allocate(10)); } catch (ClosedChannelException expected) { woken.countDown(); } catch (IOException other) { }
      }).start();
      Thread.sleep(20);
      socket.close();
      channel.close();
      if (!woken.await(10, TimeUnit.SECONDS)) throw new IOException("a reader still sleeps");
    }
  }

  static void serveBlocking(InetSocketAddress address) throws IOException {
    try (var listener = new ServerSocket()) {
      listener.setReuseAddress(true);
      listener.bind(address);
      while (true) {
        var connection = listener.accept();
        new Thread(() -> {
          try (connection) { connection.getInputStream().transferTo(connection.getOutputStream()); } catch (IOException ended) { }
        }).start();
      }
    }
  }

  static byte[] talkBlocking(InetSocketAddress address, byte[] data) throws Exception {
    try (var socket = new Socket(address.getAddress(), address.getPort())) {
      socket.setSoTimeout(30_000);
      var sender = new Thread(() -> {
        try { socket.getOutputStream().write(data); socket.shutdownOutput(); } catch (IOException failed) { }
      });
      sender.start();
      byte[] got = socket.getInputStream().readAllBytes();
      sender.join();
      return got;
    }
  }

  static void serveNio(InetSocketAddress address) throws IOException {
    var selector = Selector.open();
    var listener = ServerSocketChannel.open().bind(address);
    listener.configureBlocking(false);
    listener.register(selector, SelectionKey.OP_ACCEPT);
    while (true) {
      selector.select();
      for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
        var key = keys.next();
        keys.remove();
        if (key.isAcceptable()) {
          var accepted = listener.accept();
          if (accepted == null) continue;
          accepted.configureBlocking(false);
          accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(50_000));
          continue;
        }
        var channel = (SocketChannel) key.channel();
        var buffer = (ByteBuffer) key.attachment();
        try {
          if (key.isReadable()) {
            int n = channel.read(buffer.clear());
            if (n < 0) { channel.close(); continue; }
            buffer.flip();
          }
          channel.write(buffer);
          key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
        } catch (IOException ended) {
          channel.close();
        }
      }
    }
  }

  static byte[] talkNio(InetSocketAddress address, byte[] data) throws IOException {
    var got = new ByteArrayOutputStream();
    try (var selector = Selector.open(); var channel = SocketChannel.open()) {
      channel.configureBlocking(false);
      channel.connect(address);
      var key = channel.register(selector, SelectionKey.OP_CONNECT);
      var out = ByteBuffer.wrap(data);
      var in = ByteBuffer.allocateDirect(40_000);
      while (true) {
        if (selector.select(30_000) == 0) throw new IOException("nothing for 30 seconds");
        selector.selectedKeys().clear();
        if (key.isConnectable()) {
          channel.finishConnect();
          key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
          continue;
        }
        if (key.isWritable()) {
          channel.write(out);
          if (!out.hasRemaining()) { channel.shutdownOutput(); key.interestOps(SelectionKey.OP_READ); }
        }
        if (key.isReadable()) {
          if (channel.read(in.clear()) < 0) return got.toByteArray();
          byte[] piece = new byte[in.flip().remaining()];
          in.get(piece);
          got.write(piece);
        }
      }
    }
  }

  static void serveAio(InetSocketAddress address) throws Exception {
    var listener = AsynchronousServerSocketChannel.open().bind(address);
    while (true) {
      var connection = listener.accept().get();
      echo(connection, ByteBuffer.allocateDirect(50_000));
    }
  }

  static void echo(AsynchronousSocketChannel connection, ByteBuffer buffer) {
    connection.read(buffer.clear(), null, new CompletionHandler<Integer, Void>() {
      public void completed(Integer n, Void unused) {
        if (n < 0) { failed(null, null); return; }
        writeAll(connection, buffer.flip());
      }
      public void failed(Throwable why, Void unused) {
        try { connection.close(); } catch (IOException ignored) { }
      }
    });
  }

  static void writeAll(AsynchronousSocketChannel connection, ByteBuffer buffer) {
    connection.write(buffer, null, new CompletionHandler<Integer, Void>() {
      public void completed(Integer n, Void unused) {
        if (buffer.hasRemaining()) writeAll(connection, buffer); else echo(connection, buffer);
      }
      public void failed(Throwable why, Void unused) {
        try { connection.close(); } catch (IOException ignored) { }
      }
    });
  }

  static byte[] talkAio(InetSocketAddress address, byte[] data) throws Exception {
    var got = new ByteArrayOutputStream();
    try (var channel = AsynchronousSocketChannel.open()) {
      channel.connect(address).get(30, TimeUnit.SECONDS);
      var sender = new Thread(() -> {
        try {
          for (var out = ByteBuffer.wrap(data); out.hasRemaining(); ) channel.write(out).get(30, TimeUnit.SECONDS);
          channel.shutdownOutput();
        } catch (Exception failed) { }
      });
      sender.start();
      for (var in = ByteBuffer.allocateDirect(40_000); channel.read(in.clear()).get(30, TimeUnit.SECONDS) >= 0; ) {
        byte[] piece = new byte[in.flip().remaining()];
        in.get(piece);
        got.write(piece);
      }
      sender.join();
    }
    return got.toByteArray();
  }
}
