"""What operators do: the admin client, every operation that mqadmin uses, with typed results. `admin.Admin` is the way in."""
